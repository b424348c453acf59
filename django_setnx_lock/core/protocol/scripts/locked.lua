-- Whether anybody holds it.
return redis.call('EXISTS', KEYS[1])
