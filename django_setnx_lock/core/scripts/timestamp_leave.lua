-- Give up an acquire whose outcome is unknown or no longer wanted. A copy still on the wire will be refused.
-- KEYS  1 name  2 meta  3 gone (this token's)  [4 index]
-- ARGV  1 token
-- Reply {'OK', false}
--- timestamp
if is_mine(value_at(KEYS[1]), read_known(redis.call('GET', KEYS[2])), ARGV[1]) then
  remove(KEYS[4])
end
redis.call('SET', KEYS[3], 'left', 'PX', MEMORY)
return {'OK', false}
