-- The value is not to come: someone else may compute it at once.
-- ARGV: lease   Returns 1, or 0 if the lease is not the caller's any more
local r = read(HEADER_BYTES - 1)
if not r or r.lease ~= tonumber(ARGV[1]) then
  return 0
end
redis.call('SETRANGE', KEY, AT_LEASE, struct.pack('>dd', 0, 0))
if r.kind == 'T' and r.version == 0 then
  redis.call('DEL', KEY)
end
redis.call('PUBLISH', 'mpreg:cache:ready:' .. KEY, '')
return 1
