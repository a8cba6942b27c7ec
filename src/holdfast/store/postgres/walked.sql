-- How many entries of the claim's index this connection has walked over, dead or alive, since it last told the server's
-- statistics: what it gains within a transaction is what the statements between have walked. (Entries marked as dead are
-- passed over unseen, and not counted.)
select pg_stat_get_xact_tuples_returned('@jobs_ready'::regclass) as entries
