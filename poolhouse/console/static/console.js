// Replaces the parts of a page that the server sends, and completes the kubectl commands of forms.
"use strict";

const waiting = new Map();

// A part in which the user types, or has opened a form, is replaced when the user has left it.
function busy(part) {
  const active = document.activeElement;
  return part.contains(active) && active.matches("input, textarea, select") || part.querySelector(":popover-open") !== null;
}

function replace(message) {
  const part = document.getElementById("part-" + message.part);
  if (busy(part ?? document.getElementById("main"))) {
    waiting.set(message.part, message);
    return;
  }
  // The page has a part that it did not have before: an object that is created or valid now, an API server that answers.
  if (!part) {
    location.reload();
    return;
  }
  waiting.delete(message.part);
  const active = document.activeElement, focused = part.contains(active) && active.id;
  const open = new Set([...part.querySelectorAll("details[open][id]")].map((each) => each.id));
  const scrolled = [...part.querySelectorAll(".scroll")].map((each) => [each.scrollLeft, each.scrollTop]);
  part.innerHTML = message.html;
  part.dataset.hash = message.hash;
  part.querySelectorAll("details[id]").forEach((each) => { if (open.has(each.id)) each.open = true; });
  part.querySelectorAll(".scroll").forEach((each, i) => { if (scrolled[i]) [each.scrollLeft, each.scrollTop] = scrolled[i]; });
  if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
}

function retryWaiting() {
  setTimeout(() => [...waiting.values()].forEach(replace), 0);
}

// The message of an act is shown once, not again when the page is reloaded or opened from the history.
const address = new URL(location.href);
if (address.searchParams.has("message")) {
  for (const each of ["message", "failed", "made"]) address.searchParams.delete(each);
  history.replaceState(null, "", address);
}

let source = null;

function connect() {
  const url = document.body.dataset.events;
  if (!url || source) return;
  const have = [...document.querySelectorAll("[data-hash]")].map((each) => each.id.slice(5) + ":" + each.dataset.hash);
  source = new EventSource(url + "&have=" + encodeURIComponent(have.join(",")));
  source.onopen = () => { document.getElementById("gone").hidden = true; };
  source.onmessage = (event) => replace(JSON.parse(event.data));
  source.onerror = () => { document.getElementById("gone").hidden = false; };
}

function disconnect() {
  source?.close();
  source = null;
}

// A hidden page needs no connection, of which a browser opens at most six to one server.
document.addEventListener("visibilitychange", () => { document.hidden ? disconnect() : connect(); });
addEventListener("pagehide", disconnect);
addEventListener("pageshow", connect);
document.addEventListener("focusout", retryWaiting);
document.addEventListener("toggle", retryWaiting, true);

function quoted(value) {
  return /^[\w@%+=:,./-]+$/.test(value) ? value : "'" + value.replaceAll("'", "'\"'\"'") + "'";
}

// The command of a form: `{replicas}` is a value, `[ --ttl {ttl}]` is left out without a value.
document.addEventListener("input", (event) => {
  const form = event.target.form, code = form?.querySelector("[data-command]");
  if (!code) return;
  const value = (name) => form.elements[name]?.value ?? "";
  code.textContent = code.dataset.command
    .replace(/\[([^\]{]*)\{(\w+)\}\]/g, (all, before, name) => value(name) ? before + quoted(value(name)) : "")
    .replace(/\{(\w+)\}/g, (all, name) => quoted(value(name)) || all);
});

document.addEventListener("click", (event) => {
  const cell = event.target.closest("[data-href]");
  if (cell) location.href = cell.dataset.href;
});
