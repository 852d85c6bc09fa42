"""Notices and the ways to deliver them: what a channel is, requests to web servers, and tickets of trackers."""
