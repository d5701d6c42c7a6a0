"use strict";
// The page is complete without this script, which only copies the list of what to stop.
for (const button of document.querySelectorAll("button.copy")) {
  const items = () => [...button.closest(".stop").querySelectorAll("li")].map((item) => item.textContent.trim());
  button.hidden = false;
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(items().join("\n"));
      button.textContent = "Copied";
    } catch {
      // Without access to the clipboard, the list is selected, so that Ctrl+C copies it.
      for (const detail of button.closest(".stop").querySelectorAll("details")) detail.open = true;
      getSelection().selectAllChildren(button.closest(".stop").querySelector(".addresses"));
      button.textContent = "Selected: press Ctrl+C";
    }
  });
}
