"""What passes and proofs need to know of a program; nothing here changes one."""
