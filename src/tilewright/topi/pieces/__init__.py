"""Parts of schedules: functions on a schedule that return the axes and the stages they made."""
