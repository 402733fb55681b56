-- Removes a value or a structure. What was there leaves its version behind, and whoever computes it has lost the lease.
-- ARGV: guard ('' any, 'v' only this version, 0 being a structure; 'n' only with this nonce in its meta, or a
--   structure), the guard's value, 'o' if the old record is wanted
-- Returns {1, version, now, old meta, old record or ''}; {0, version, now} nothing was there; {-1} the guard
local old, structure = read(ARGV[3] == 'o' and -1 or HEADER_BYTES - 1)
local meta = meta_of(old)
if ARGV[1] == 'v' and (structure and 0 or old and old.kind == 'E' and old.version or -1) ~= tonumber(ARGV[2]) then
  return {-1}
end
if ARGV[1] == 'n' and not structure and (meta == '' or cmsgpack.unpack(meta)[1] ~= ARGV[2]) then
  return {-1}
end
if not structure and not old then
  return {0, 0, now}
end
local version = next_version(old)
local there = structure or old.kind == 'E'
if structure then
  redis.call('UNLINK', KEY)
end
write(old, {kind = 'T', version = version, expires = now + TOMBSTONE_MS}, '', '')
return {there and 1 or 0, version, now, meta, ARGV[3] == 'o' and old and old.data or ''}
