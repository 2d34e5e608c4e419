// Requests to the service. The token is stored in sessionStorage, that is in this tab until the tab is closed.

const KEY = "halfseen-token";
const MAX_WAIT = 30_000;

export const token = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (value) => sessionStorage.setItem(KEY, value),
  forget: () => sessionStorage.removeItem(KEY),
};

export class RequestError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export async function getJson(path, signal) {
  const headers = { accept: "application/json" };
  if (token.get()) headers.authorization = `Bearer ${token.get()}`;
  let reply;
  try {
    reply = await fetch(path, { headers, signal, cache: "no-store", credentials: "omit" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new RequestError(0, "The service does not answer.");
  }
  let body = null;
  try {
    body = await reply.json();
  } catch {
    // handled below
  }
  if (!reply.ok) throw new RequestError(reply.status, body?.error?.message ?? `The service replied with status ${reply.status}.`);
  if (body === null) throw new RequestError(reply.status, "The reply of the service is not JSON.");
  return body;
}

// Calls `work` every `period` milliseconds, except while the page is hidden or paused, and less often after errors.
export class Poll {
  #timer = null;
  #abort = null;
  #failures = 0;
  #stopped = false;

  constructor(work, period, { onError, onSuccess, isPaused }) {
    Object.assign(this, { work, period, onError, onSuccess, isPaused });
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
      this.onSuccess();
    } catch (error) {
      if (abort.signal.aborted) return;
      this.#failures += 1;
      wait = Math.min(MAX_WAIT, this.period * 2 ** (this.#failures - 1));
      this.onError(error, wait);
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
