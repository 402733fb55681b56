-- Lives at least so long from now; never shorter than before, and what has no end has none after.
-- ARGV: ms   Returns {1, version (0: a structure), now, when it ends (0: never)}; {0} nothing is there
local r, structure = read(HEADER_BYTES - 1)
local ends = now + tonumber(ARGV[1])
if structure then
  local before = redis.call('PEXPIRETIME', KEY)
  if before > 0 and before < ends then
    redis.call('PEXPIREAT', KEY, ends)
  end
  return {1, 0, now, before > 0 and math.max(before, ends) or 0}
end
if not r or r.kind ~= 'E' then
  return {0, 0, now, 0}
end
if r.expires == 0 then
  return {1, r.version, now, 0}
end
local stale = r.fresh > 0 and r.expires - r.fresh or 0
local fresh = r.fresh > 0 and math.max(r.fresh, ends) or 0
local expires = math.max(r.expires, ends + stale)
redis.call('SETRANGE', KEY, AT_EXPIRES, struct.pack('>dd', expires, fresh))
redis.call('PEXPIREAT', KEY, expires)
return {1, r.version, now, expires}
