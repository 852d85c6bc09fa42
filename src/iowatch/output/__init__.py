"""What people and other programs read: reports, notices and the dashboard."""
