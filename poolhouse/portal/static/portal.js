// Reads the VMs of the page again, more often while one is awaited. `replace` of console.js shows what has changed.
"use strict";

const vms = document.getElementById("part-vms");
let timer = null;

async function read() {
  timer = null;
  try {
    const answer = await fetch("/part", { headers: { Accept: "application/json" }, signal: AbortSignal.timeout(30000) });
    if (answer.status === 401) {
      document.getElementById("ended").hidden = false;
      return;
    }
    const message = await answer.json();
    document.getElementById("gone").hidden = true;
    vms.dataset.seconds = message.seconds;
    if (message.hash !== vms.dataset.hash) replace(message);
  } catch {
    document.getElementById("gone").hidden = false;
  }
  later();
}

function later() {
  if (timer === null && !document.hidden) timer = setTimeout(read, 1000 * vms.dataset.seconds);
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    clearTimeout(timer);
    timer = null;
  } else if (document.getElementById("ended").hidden && timer === null) read();
});
later();
