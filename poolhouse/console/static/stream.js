// What the pages of a serial console and of a screen share: the connection, its state in words, and the keys that leave.

export const box = document.getElementById("stream");
const state = document.getElementById("state");
const disconnect = document.getElementById("disconnect"), again = document.getElementById("again");

function show(text, connected) {
  state.textContent = text;
  state.classList.toggle("good", connected);
  disconnect.disabled = !connected;
  again.hidden = connected;
}

// Calls `start` with each new websocket. It returns a function that gives the focus to the guest.
export function connect(start) {
  const socket = new WebSocket(location.origin.replace(/^http/, "ws") + box.dataset.url);
  socket.binaryType = "arraybuffer";
  again.hidden = true;
  const focus = start(socket);
  socket.addEventListener("open", () => { show("Connected.", true); focus(); });
  socket.addEventListener("close", (event) => {
    const active = document.activeElement, lost = box.contains(active) || [disconnect, document.body].includes(active);
    show(event.reason || (event.code === 1005 ? "Disconnected." : "The console does not answer."), false);
    if (lost) again.focus();
  });
  disconnect.onclick = () => socket.close();
  again.onclick = () => connect(start);
}

// Without such keys, the focus could not leave a guest that gets the tabulator. `left` is called after them.
export function leaveByKeys(left) {
  box.addEventListener("keydown", (event) => {
    if (!event.ctrlKey || (event.key !== "]" && event.key !== "F6")) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    left();
    disconnect.focus();
  }, true);
}
