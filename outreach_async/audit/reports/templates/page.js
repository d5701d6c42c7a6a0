"use strict";
// The page is complete without this script, which only copies lists of names: below each workspace, a line for each.
for (const button of document.querySelectorAll("button.copy")) {
  const list = button.nextElementSibling;
  const items = () => [...list.querySelectorAll("h3, li")].map((item) => item.textContent.trim() + (item.matches("h3") ? ":" : ""));
  button.hidden = false;
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(items().join("\n"));
      button.textContent = "Copied";
    } catch {
      // Without access to the clipboard, the list is selected, so that Ctrl+C copies it.
      getSelection().selectAllChildren(list);
      button.textContent = "Selected: press Ctrl+C";
    }
  });
}
