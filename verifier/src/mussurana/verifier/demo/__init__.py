"""`mussurana demo`: an application (`hospital`), what it runs on (`stage`), and how it is shown (`play`, `screen`)."""
