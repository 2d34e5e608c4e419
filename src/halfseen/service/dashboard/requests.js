// Requests to the service, once and again and again. The token lives in sessionStorage: this tab, until it is closed.

const KEY = "halfseen-token";
const LONGEST_WAIT = 30_000;

export const token = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (value) => sessionStorage.setItem(KEY, value),
  forget: () => sessionStorage.removeItem(KEY),
};

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export async function ask(path, signal) {
  const headers = { accept: "application/json" };
  if (token.get()) headers.authorization = `Bearer ${token.get()}`;
  let reply;
  try {
    reply = await fetch(path, { headers, signal, cache: "no-store", credentials: "omit" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "The service does not answer.");
  }
  let body = null;
  try {
    body = await reply.json();
  } catch {
    // said below
  }
  if (!reply.ok) throw new Refused(reply.status, body?.error?.message ?? `The service answered ${reply.status}.`);
  if (body === null) throw new Refused(reply.status, "The service answered something that is not JSON.");
  return body;
}

// Asks every `period`, not while the page is hidden or paused, and less often while it goes wrong.
export class Poll {
  #timer = null;
  #abort = null;
  #failures = 0;
  #stopped = false;

  constructor(work, period, { onTrouble, onFine, isPaused }) {
    Object.assign(this, { work, period, onTrouble, onFine, isPaused });
    this.wake = () => {
      if (!document.hidden && !this.isPaused()) this.now();
    };
    document.addEventListener("visibilitychange", this.wake);
    this.now();
  }

  async now() {
    if (this.#stopped) return;
    clearTimeout(this.#timer);
    this.#abort?.abort();
    const abort = (this.#abort = new AbortController());
    let wait = this.period;
    try {
      await this.work(abort.signal);
      this.#failures = 0;
      this.onFine();
    } catch (error) {
      if (abort.signal.aborted) return;
      this.#failures += 1;
      wait = Math.min(LONGEST_WAIT, this.period * 2 ** (this.#failures - 1));
      this.onTrouble(error, wait);
    }
    if (this.#stopped || abort.signal.aborted) return;
    this.#timer = setTimeout(() => {
      if (!document.hidden && !this.isPaused()) this.now();
    }, wait);
  }

  stop() {
    this.#stopped = true;
    clearTimeout(this.#timer);
    this.#abort?.abort();
    document.removeEventListener("visibilitychange", this.wake);
  }
}
