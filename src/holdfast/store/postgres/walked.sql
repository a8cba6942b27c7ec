-- How many entries of the claim's index this connection has walked over, dead or alive, and how many of its pages it has
-- read, since it last told the server's statistics: what both gain within a transaction is what the statements between have
-- walked. An entry marked as dead is passed over unseen, and not counted; its page is.
select pg_stat_get_xact_tuples_returned(index) as entries, pg_stat_get_xact_blocks_fetched(index) as pages
  from (select '@jobs_ready'::regclass as index) claims
