// Which page is shown, and what all pages share: the token, the pause, and what to say when something goes wrong.

import { Poll, token } from "./requests.js";
import { setText } from "./dom.js";
import { overviewPage } from "./overview.js";
import { streamPage } from "./stream.js";

const PERIOD = 2000;
const at = (id) => document.getElementById(id);
const [main, panel, trouble] = [at("main"), at("token-panel"), at("trouble")];
let polls = [];
let paused = false;
let shownBefore = false;

function showPage() {
  const hash = location.hash;
  if (hash === "#main") return;
  for (const poll of polls) poll.stop();
  const name = hash.startsWith("#/streams/") ? decode(hash.slice("#/streams/".length)) : null;
  const page = name ? streamPage(name) : overviewPage();
  main.replaceChildren(...page.elements);
  document.title = name ? `${name} – halfseen` : "halfseen";
  setText(at("status"), "");
  trouble.hidden = true;
  const shared = { onTrouble: tell, onFine: fine, isPaused: () => paused };
  polls = [new Poll(page.update, PERIOD, shared)];
  if (page.updateRarely) polls.push(new Poll(page.updateRarely, 5 * PERIOD, { ...shared, onFine: () => {} }));
  if (shownBefore) main.focus(); // where a link has led to
  shownBefore = true;
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function fine() {
  trouble.hidden = true;
  setText(at("status"), paused ? "Paused." : `Updated ${new Date().toLocaleTimeString()}; every ${PERIOD / 1000} seconds.`);
}

function tell(error, wait) {
  const wantsToken = error.status === 401 || error.status === 403;
  if (wantsToken && panel.hidden) openPanel(true, error.status === 401 && !shownBefore);
  const what = wantsToken ? `The service asks for a token. ${error.message}` : (error.message ?? String(error));
  const next = error.status === 404 ? "" : ` Trying again in ${Math.round(wait / 1000)} s.`;
  if (!(error.status >= 0)) console.error(error);
  setText(at("trouble-text"), what + next);
  trouble.hidden = false;
}

function again() {
  for (const poll of polls) poll.now();
}

function openPanel(open, focus = true) {
  panel.hidden = !open;
  at("token-toggle").setAttribute("aria-expanded", String(open));
  if (open && focus) at("token").focus();
}

at("token-toggle").addEventListener("click", () => openPanel(panel.hidden));
panel.addEventListener("submit", (event) => {
  event.preventDefault();
  token.set(at("token").value.trim());
  at("token").value = "";
  openPanel(false);
  at("token-toggle").focus();
  again();
});
at("token-forget").addEventListener("click", () => {
  token.forget();
  at("token").value = "";
  openPanel(false);
  at("token-toggle").focus();
  again();
});
panel.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  openPanel(false);
  at("token-toggle").focus();
});
at("pause").addEventListener("click", () => {
  paused = !paused;
  at("pause").setAttribute("aria-pressed", String(paused));
  if (paused) setText(at("status"), "Paused.");
  else again();
});
at("retry").addEventListener("click", again);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address says which page this is
  main.focus();
});
addEventListener("hashchange", showPage);
showPage();
