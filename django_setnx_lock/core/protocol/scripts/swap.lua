-- Put the token of another process, which takes the lock over, in the place of the one by which it is held.
-- ARGV  1 the old token  2 the new one  3 fence of the lock
--       4 the holder record of who takes it over: that gets the time since when it holds the lock
-- Reply {'OK'}
--       {'LOST', how it was lost (JSON) or false}
--- keys
--- prelude
local value = token_at(NAME)
local fence = read_meta(redis.call('GET', META))
if value == ARGV[2] and fence == tonumber(ARGV[3]) then
  -- A copy of a request that was carried out: another lock by this token has another fence.
  return {'OK'}
end
if value ~= ARGV[1] then
  return {'LOST', redis.call('GET', TOMBSTONE)}
end
local record = string.gsub(ARGV[4], '}$', ',"since":' .. whole(now_ms()) .. '}')
-- A copy of the acquire that is still on the wire must not take the lock once it is free.
redis.call('SET', TOMBSTONE, 'left', 'PX', MEMORY)
redis.call('SET', META, table.concat({ARGV[3], #ARGV[2], ARGV[2], record}, ' '), 'KEEPTTL')
grow(META, redis.call('PTTL', NAME) + META_MARGIN)
redis.call('SET', NAME, ARGV[2], 'KEEPTTL')
return {'OK'}
