// Apply the chosen theme before anything is painted. Without a choice the system's theme is used.
try {
  const chosen = localStorage.getItem("strandline-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // A browser without storage uses the system's theme.
}
