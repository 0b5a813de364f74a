exec(open('/tmp/ev/ck.py').read().split("R=[]")[0])
sums=np.zeros((p:=150000,16)); sums[:]=1
print(open('/proc/self/smaps_rollup').read())
