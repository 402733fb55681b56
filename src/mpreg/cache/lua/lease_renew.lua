-- ARGV: lease, ms   Returns 1, or 0 if the lease is not the caller's any more
local r = read(HEADER_BYTES - 1)
if not r or r.lease ~= tonumber(ARGV[1]) then
  return 0
end
local until_ms = now + tonumber(ARGV[2])
redis.call('SETRANGE', KEY, AT_LEASE, struct.pack('>dd', r.lease, until_ms))
if r.kind == 'T' and until_ms > r.expires then
  redis.call('SETRANGE', KEY, AT_EXPIRES, struct.pack('>d', until_ms))
  redis.call('PEXPIREAT', KEY, until_ms)
end
return 1
