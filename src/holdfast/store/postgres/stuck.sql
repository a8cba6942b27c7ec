-- Which of these processes of the server still wait for a synchronous standby.
select pid from pg_stat_activity where pid @any(processes) and wait_event = 'SyncRep'
