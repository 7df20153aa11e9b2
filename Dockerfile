# docker build -t purejax-sc .
# docker run purejax-sc                       the first command of the README: learns MinAtar Breakout
# docker run purejax-sc pytest -n 2           the second one: runs the tests
FROM python:3.12-slim
WORKDIR /purejax_sc
COPY . .
RUN pip install --no-cache-dir -e ".[test]"
CMD ["purejax-sc", "train", "minatar_breakout", "--seeds", "5"]
