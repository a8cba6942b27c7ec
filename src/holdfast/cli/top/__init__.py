"""`holdfast top`: queues, workers, running jobs and failures on one screen, live.

`command` is the command, `document` makes one look at the database into data, `sections` and `table` make that data
into tables, `screen` fits them to a terminal, `live` looks and draws again and again, `terminal` reads keys."""
