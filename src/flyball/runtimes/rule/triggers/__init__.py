"""Sources of triggers: one for each kind, for all rules. A source says when a rule is fired and with what; whether that
is run, and when, is not its business. What it has to remember is written with the spark, in one transaction, so after a
crash nothing is fired twice and nothing is left out."""
