-- Empties a queue, or deletes it and its dead letters. ARGV: time, 1 to delete it
-- Returns how many messages are gone, or -1 if there is no such queue. Who holds one finds its receipt outdated.
if not TYPE then
  return -1
end
local gone = counts[HERE]
redis.call('UNLINK', MSG, READY, ACTIVE, DELAYED, LEASED, HELD, CASTS, EXPIRY, GROUPS, WHY)
if ARGV[2] == '1' then
  redis.call('UNLINK', CFG, SUBS, unpack(KEYS, 13))
  redis.call('PUBLISH', CFG:sub(1, -4) .. 'events', 'deleted')
else
  count(PURGED, gone)
  counts[HERE], counts[LEASES], counts[DELAYS], counts[SOONEST] = 0, 0, 0, 0
  finally()
end
return gone
