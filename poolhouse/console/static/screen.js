// The screen of a VM, by noVNC.
import RFB from "./novnc.js";
import { box, connect, leaveByKeys } from "./stream.js";

const CONTROLS = [[0xffe3, "ControlLeft"], [0xffe4, "ControlRight"]];
const reset = document.getElementById("reset");
let rfb = null;

// The guest has seen that Ctrl was pressed, and would not see that it is released.
leaveByKeys(() => CONTROLS.forEach(([keysym, code]) => rfb.sendKey(keysym, code, false)));
reset.addEventListener("click", () => rfb.sendCtrlAltDel());

connect((socket) => {
  rfb = new RFB(box, socket);
  rfb.scaleViewport = true;
  const canvas = box.querySelector("canvas");
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "application");
  canvas.setAttribute("aria-label", box.dataset.label);
  canvas.setAttribute("aria-describedby", "leave-help");
  rfb.addEventListener("connect", () => { reset.disabled = false; });
  rfb.addEventListener("disconnect", () => { reset.disabled = true; });
  return () => rfb.focus();
});
