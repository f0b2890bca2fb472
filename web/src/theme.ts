// Light or dark: as the system has it, until the user chooses.

import { signal } from "@preact/signals";

const KEY = "trestle-theme";
const system = matchMedia("(prefers-color-scheme: dark)");
const chosen = () => localStorage.getItem(KEY);

export const theme = signal<string>(chosen() ?? (system.matches ? "dark" : "light"));

function show() {
  document.documentElement.dataset.theme = theme.value;
}

system.addEventListener("change", () => {
  if (chosen() === null) theme.value = system.matches ? "dark" : "light";
  show();
});

export function toggleTheme() {
  theme.value = theme.value === "dark" ? "light" : "dark";
  localStorage.setItem(KEY, theme.value);
  show();
}

show();
