-- What still holds jobs although it has ended: a pause that is over, or gone.
with recursive
@ended_hold
select held_by from ended_hold
