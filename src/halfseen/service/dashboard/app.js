// Shows the page of the current address, and handles the token, the pause button and error messages.

import { Poll, token } from "./requests.js";
import { setText } from "./dom.js";
import { overviewPage } from "./overview.js";
import { streamPage } from "./stream.js";

const PERIOD = 2000;
const at = (id) => document.getElementById(id);
const [main, panel, errorBox] = [at("main"), at("token-panel"), at("error")];
let polls = [];
let paused = false;
let firstPageShown = false;

function showPage() {
  const hash = location.hash;
  if (hash === "#main") return;
  for (const poll of polls) poll.stop();
  const name = hash.startsWith("#/streams/") ? decode(hash.slice("#/streams/".length)) : null;
  const page = name ? streamPage(name) : overviewPage();
  main.replaceChildren(...page.elements);
  document.title = name ? `${name} – halfseen` : "halfseen";
  setText(at("status"), "");
  errorBox.hidden = true;
  const shared = { onError: showError, onSuccess: showSuccess, isPaused: () => paused };
  polls = [new Poll(page.update, PERIOD, shared)];
  if (page.updateRarely) polls.push(new Poll(page.updateRarely, 5 * PERIOD, { ...shared, onSuccess: () => {} }));
  if (firstPageShown) main.focus(); // after a click on a link
  firstPageShown = true;
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function showSuccess() {
  errorBox.hidden = true;
  setText(at("status"), paused ? "Paused." : `Updated at ${new Date().toLocaleTimeString()}. Updates every ${PERIOD / 1000} seconds.`);
}

function showError(error, wait) {
  const needsToken = error.status === 401 || error.status === 403;
  if (needsToken && panel.hidden) openPanel(true, error.status === 401 && !firstPageShown);
  const message = needsToken ? `The service requires a token. ${error.message}` : (error.message ?? String(error));
  const next = error.status === 404 ? "" : ` Trying again in ${Math.round(wait / 1000)} s.`;
  if (!(error.status >= 0)) console.error(error);
  setText(at("error-text"), message + next);
  errorBox.hidden = false;
}

function updateNow() {
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
  updateNow();
});
at("token-forget").addEventListener("click", () => {
  token.forget();
  at("token").value = "";
  openPanel(false);
  at("token-toggle").focus();
  updateNow();
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
  else updateNow();
});
at("retry").addEventListener("click", updateNow);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // following the link would change the address, which selects the page
  main.focus();
});
addEventListener("hashchange", showPage);
showPage();
