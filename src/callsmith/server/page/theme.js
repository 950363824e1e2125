// Light or dark: as the system says, or as somebody has chosen.

import { button } from "./dom.js";

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
    const theme = NEXT[localStorage.getItem(THEME) || ""];
    localStorage.setItem(THEME, theme);
    show(theme);
  });
  show(localStorage.getItem(THEME) || "");
  place.append(change);
}
