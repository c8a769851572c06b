"""From a schedule to the form in which programs are shown: its loops, instructions, fragments."""
