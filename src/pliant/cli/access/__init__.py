"""Logins and permissions: users, applications, access keys, access rules, roles."""
