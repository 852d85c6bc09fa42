"""Output for people and programs: reports, notices and the dashboard."""
