-- Writes a value, whatever was there.
-- ARGV: value, TTL in ms (0: none), ms to serve it after that while it is computed anew, cost, meta, lease or '',
--   version or '' (of a copy: refused unless it is newer than what is there), 'o' if the old record is wanted
-- Returns {1, version, now, old meta, old record or ''}; {0} an older copy; {-1} the lease is lost; {-2} a structure
local old, structure = read(ARGV[8] == 'o' and -1 or HEADER_BYTES - 1)
if structure then
  return {WRONG_TYPE}
end
if ARGV[6] ~= '' and not (old and old.lease == tonumber(ARGV[6])) then
  return {-1}
end
local version = next_version(old)
if ARGV[7] ~= '' then
  version = tonumber(ARGV[7])
  if old and old.version >= version then
    return {0}
  end
end
local ttl, stale = tonumber(ARGV[2]), tonumber(ARGV[3])
local old_meta = meta_of(old)
write(old, {
  version = version,
  expires = ttl > 0 and now + ttl + stale or 0,
  fresh = (ttl > 0 and stale > 0) and now + ttl or 0,
  cost = tonumber(ARGV[4]),
}, ARGV[5], ARGV[1])
return {1, version, now, old_meta, ARGV[8] == 'o' and old and old.data or ''}
