// Light or dark: as the system says, or as somebody has chosen.

import { button } from "./dom.js";
import { forLong } from "./memory.js";

const THEME = "callsmith.theme";
const NEXT = { "": "light", light: "dark", dark: "" };
const WORDS = { "": "Theme: system", light: "Theme: light", dark: "Theme: dark" };

export function setUpTheme(place) {
  const show = (theme) => {
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
    change.lastChild.textContent = WORDS[theme];
  };
  const change = button(WORDS[""], { name: "sun", kind: "quiet wide" }, () => {
    const theme = NEXT[forLong.getItem(THEME) || ""];
    forLong.setItem(THEME, theme);
    show(theme);
  });
  show(forLong.getItem(THEME) || "");
  place.append(change);
}
