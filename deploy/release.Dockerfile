# Redline with the GPU backend from a release's bundle, on NVIDIA's runtime image, which has CUDA's libraries, cuDNN and NCCL.
# Nothing is compiled. In the folder that holds the bundle (deploy/release makes it in out/):
#
#   docker build -f deploy/release.Dockerfile -t redline:cuda out
#   docker run --rm --gpus all -v "$PWD:/work" redline:cuda train /work/flowers -o /work/runs
#
# Without the GPU: --build-arg BASE=debian:12-slim. The base needs glibc 2.36 or later.
ARG BASE=nvidia/cuda:13.0.1-cudnn-runtime-ubuntu24.04
FROM $BASE
ADD redline-*-linux-x86_64.tar.gz /opt/
# Works for any user, even one without an entry in passwd; output goes to the folder it is started in.
RUN cd /opt && ln -s redline-*-linux-x86_64 redline && /opt/redline/bin/redline --version \
    && mkdir /work && chmod 1777 /work && echo 'redline:x:10001:10001::/work:/usr/sbin/nologin' >>/etc/passwd \
    && echo 'redline:x:10001:' >>/etc/group
# All of the driver's libraries: by default, the ones that decode JPEGs in hardware are missing.
ENV PATH=/opt/redline/bin:$PATH NVIDIA_DRIVER_CAPABILITIES=all
USER 10001:10001
WORKDIR /work
ENTRYPOINT ["redline"]
