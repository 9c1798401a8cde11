"""Alerts: news for people who are not looking. They follow the journal; nothing that governs knows of them."""
