"""Who may log in and what they may do: users, applications, access keys, access rules."""
