// Asks again and again: every `period`, not while the page is hidden or paused, and less often while it goes wrong.

const LONGEST = 30_000;

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
      wait = Math.min(LONGEST, this.period * 2 ** (this.#failures - 1));
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
