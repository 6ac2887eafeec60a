// Light or dark, before anything is painted: as chosen on this page, else as the system is set.
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const chosen = () => localStorage.getItem("leasehold-theme");
  const apply = () => { document.documentElement.dataset.theme = chosen() || (dark.matches ? "dark" : "light"); };
  apply();
  dark.addEventListener("change", apply);
  addEventListener("DOMContentLoaded", () => {
    document.getElementById("theme").addEventListener("click", () => {
      localStorage.setItem("leasehold-theme", document.documentElement.dataset.theme === "dark" ? "light" : "dark");
      apply();
    });
  });
})();
