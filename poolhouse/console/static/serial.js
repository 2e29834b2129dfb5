// The serial console of a VM. Only xterm.js interprets what the guest sends.
import { Terminal } from "./xterm.js";
import { box, connect, leaveByKeys } from "./stream.js";

// xterm.js writes styles as text, which the Content-Security-Policy forbids. It allows the same by the CSSOM.
const createElement = document.createElement.bind(document), setAttribute = Element.prototype.setAttribute;
document.createElement = (name, options) => {
  if (name !== "style") return createElement(name, options);
  const sheet = new CSSStyleSheet();
  document.adoptedStyleSheets.push(sheet);
  return Object.defineProperty(createElement("template"), "textContent", { set: (text) => sheet.replaceSync(text) });
};
Element.prototype.setAttribute = function (name, value) {
  if (name === "style") this.style.cssText = value;
  else setAttribute.call(this, name, value);
};

// Guests learn no size from a serial console, and assume this one. A link that a guest writes opens nothing.
const terminal = new Terminal({
  cols: 80, rows: 24, scrollback: 10000, screenReaderMode: true, linkHandler: { activate() {} },
});
terminal.open(box);
terminal.textarea.setAttribute("aria-label", box.dataset.label);
terminal.textarea.setAttribute("aria-describedby", "leave-help");
leaveByKeys(() => {});

let socket = null;
const send = (bytes) => { if (socket.readyState === WebSocket.OPEN) socket.send(bytes); };
terminal.onData((text) => send(new TextEncoder().encode(text)));
terminal.onBinary((text) => send(Uint8Array.from(text, (each) => each.charCodeAt(0))));

connect((opened) => {
  socket = opened;
  opened.addEventListener("message", (event) => terminal.write(new Uint8Array(event.data)));
  return () => terminal.focus();
});
