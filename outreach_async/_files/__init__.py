"""Files and objects: written completely or not at all, and safe for spreadsheets."""
