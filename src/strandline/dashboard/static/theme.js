// The theme that was chosen, before anything is painted. Without a choice the system's own holds.
try {
  const chosen = localStorage.getItem("strandline-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // A browser that keeps nothing shows the system's theme.
}
