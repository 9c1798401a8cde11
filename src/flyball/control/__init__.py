"""What people see and do. Everything here is computed from states and journal; nothing here decides."""
