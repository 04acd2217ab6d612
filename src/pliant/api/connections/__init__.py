"""How clients reach the server: sockets, TLS, host names, and the account at the other end."""
