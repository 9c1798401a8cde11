"""The Telegram bot: people who are listed look and order from their phones, by the same verbs as everywhere.

`talk` knows what is said and what follows, `words` how it reads, `inbox` what was done already, `polling` how to
listen, `api` the one library that speaks to Telegram. Nothing here decides, and nothing else imports that library.
"""
