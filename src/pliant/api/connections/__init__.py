"""How the server is reached: sockets, TLS, the names it is asked under, and who is at the other end."""
